# forward_sm80_throughput's compiled kernels: one small translation unit for each row of kConfigs (config.hpp),
# input type and level of features; instances.cpp makes the list of them a table.
set(sm80_half_configs 5)
set(sm80_configs 8)
set(sm80_paired_fallback 4)  # kPairedConfig.fallback
set(sm80_scores_configs 0 2)  # has_scores_kernel
set(sm80_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/forward_sm80/throughput)
set(sm80_sources "")
set(sm80_declarations "")
set(sm80_entries "")
set(sm80_instances 0)

# TEMPLATE, the file that defines the kernel, may follow.
function(sm80_instance INSTANCE_ELEMENT INSTANCE_CONFIG INSTANCE_FEATURES)
  set(template instance.cu.in)
  set(name "${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}_${INSTANCE_FEATURES}")
  if(ARGC GREATER 3)
    set(template ${ARGV3})
    set(name "${INSTANCE_ELEMENT}_paired")
  endif()
  string(TOLOWER ${name} INSTANCE_NAME)
  set(type_Fp16 f16)
  set(type_Bf16 bf16)
  set(type_Fp32 f32)
  set(key "{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}, Features::${INSTANCE_FEATURES}}")
  set(source ${sm80_generated}/${INSTANCE_NAME}.cu)
  configure_file(forward_sm80/throughput/${template} ${source} @ONLY)
  if(INSTANCE_CONFIG EQUAL sm80_paired_fallback AND INSTANCE_FEATURES STREQUAL none)
    # On 9.0 pairs of warps always take its place.
    flashcore_cuda_sources(forward_sm80_throughput EXCEPT 90a SOURCES ${source})
  else()
    set(sm80_sources ${sm80_sources} ${source} PARENT_SCOPE)
  endif()
  set(sm80_declarations "${sm80_declarations}InstanceEntry ${INSTANCE_NAME}();\n" PARENT_SCOPE)
  set(sm80_entries "${sm80_entries}      {${key}, ${INSTANCE_NAME}()},\n" PARENT_SCOPE)
  math(EXPR sm80_instances "${sm80_instances} + 1")
  set(sm80_instances ${sm80_instances} PARENT_SCOPE)
endfunction()

math(EXPR last_half "${sm80_half_configs} - 1")
math(EXPR last "${sm80_configs} - 1")
foreach(element Fp16 Bf16)
  foreach(config RANGE ${last_half})
    sm80_instance(${element} ${config} none)
    if(NOT config EQUAL 1)  # config_with_all
      sm80_instance(${element} ${config} all)
    endif()
  endforeach()
  foreach(config ${sm80_scores_configs})
    sm80_instance(${element} ${config} scores)
  endforeach()
endforeach()
foreach(element Fp16 Bf16)
  sm80_instance(${element} ${sm80_configs} none paired_instance.cu.in)  # kPairedRow
endforeach()
foreach(config RANGE ${sm80_half_configs} ${last})
  sm80_instance(Fp32 ${config} all)
endforeach()
configure_file(forward_sm80/throughput/instance_list.hpp.in ${sm80_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(forward_sm80_throughput SOURCES ${sm80_sources} forward_sm80/throughput/combine.cu)
target_sources(flashcore_objects PRIVATE forward_sm80/throughput/instances.cpp)
set_source_files_properties(forward_sm80/throughput/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${sm80_generated})
